from .base import Domain as Domain
from .base import Input as Input
from .registry import DOMAINS as DOMAINS
from .registry import SCHEMAS as SCHEMAS
from .registry import domain_of as domain_of
from .registry import register as register
from .registry import schema_named as schema_named
