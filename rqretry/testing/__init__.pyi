from rqretry.testing.lab import Lab as Lab
from rqretry.testing.paths import Attempt as Attempt
from rqretry.testing.paths import Step as Step

__all__ = ["Attempt", "Lab", "Step"]
