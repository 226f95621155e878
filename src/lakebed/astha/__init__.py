from lakebed.astha.astha import Astha
from lakebed.astha.options import AsthaOptions
from lakebed.astha.status import AsthaStatus

__all__ = ["Astha", "AsthaOptions", "AsthaStatus"]
