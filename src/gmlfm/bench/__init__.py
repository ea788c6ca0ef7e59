"""What training costs on this machine: ways to train side by side, each in a process of its own, in alternating rounds."""
