from lakebed.astha.options import AsthaOptions
from lakebed.astha.status import AsthaStatus
from lakebed.astha.supervisor import Astha

__all__ = ["Astha", "AsthaOptions", "AsthaStatus"]
