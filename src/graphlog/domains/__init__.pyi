from .base import DOMAINS as DOMAINS
from .base import Domain as Domain
from .base import Input as Input
from .base import Reading as Reading
from .base import domain_of as domain_of
from .base import register as register
from .base import schema_named as schema_named
