"""What limits a claim besides free slots: `pace` (how long jobs run), `admission` (free memory) and `web_priority`
(requests that this process is answering)."""
