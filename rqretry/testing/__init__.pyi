from rqretry.testing.history import Attempt as Attempt
from rqretry.testing.history import Step as Step
from rqretry.testing.lab import Lab as Lab

__all__ = ["Attempt", "Lab", "Step"]
