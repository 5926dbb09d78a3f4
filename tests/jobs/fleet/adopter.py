"""Starts `snapapp` with these arguments, adopts what it leaves behind when it is killed, and says how all ended."""

import os
import runpy

from snapapp.jobs.os.parentage import adopt

if __name__ == "__main__":
    adopt()
    if os.fork() == 0:
        runpy.run_module("snapapp", run_name="__main__", alter_sys=True)
        os._exit(1)  # it leaves by itself
    codes = []
    try:
        while True:
            codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        print(sorted(codes))
