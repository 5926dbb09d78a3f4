"""For `SNAPAPP_PROCESSORS`: the kinds of this lab, in the process that serves."""

from snapapp.jobs import registry
from tests.labs.executors import kinds

for processor in kinds.registry:
    if processor.kind != "thread.stuck":  # whoever meets enough of those is replaced, which is another story
        registry.default.add(processor)
