"""How fast rqretry is: `python -m benchmarks run SCENARIO...`; see docs/performance.md."""
