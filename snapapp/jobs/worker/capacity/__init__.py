"""What a claim depends on beside free slots: `pace` (how long jobs take), `admission` (memory), `web_priority`."""
