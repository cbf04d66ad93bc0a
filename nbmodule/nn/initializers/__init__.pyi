"""The names of `nbmodule.nn.initializers`."""

from nbmodule.nn.initializers.adapters import FromFunction as FromFunction
from nbmodule.nn.initializers.adapters import InitializerLike as InitializerLike
from nbmodule.nn.initializers.adapters import as_initializer as as_initializer
from nbmodule.nn.initializers.base import Initializer as Initializer
from nbmodule.nn.initializers.base import compute_fans as compute_fans
from nbmodule.nn.initializers.distributions import Constant as Constant
from nbmodule.nn.initializers.distributions import FirstLayerSiren as FirstLayerSiren
from nbmodule.nn.initializers.distributions import GlorotNormal as GlorotNormal
from nbmodule.nn.initializers.distributions import GlorotUniform as GlorotUniform
from nbmodule.nn.initializers.distributions import KaimingNormal as KaimingNormal
from nbmodule.nn.initializers.distributions import KaimingUniform as KaimingUniform
from nbmodule.nn.initializers.distributions import LecunNormal as LecunNormal
from nbmodule.nn.initializers.distributions import Ones as Ones
from nbmodule.nn.initializers.distributions import Orthogonal as Orthogonal
from nbmodule.nn.initializers.distributions import RandomNormal as RandomNormal
from nbmodule.nn.initializers.distributions import Siren as Siren
from nbmodule.nn.initializers.distributions import TruncatedNormal as TruncatedNormal
from nbmodule.nn.initializers.distributions import Uniform as Uniform
from nbmodule.nn.initializers.distributions import Zeros as Zeros
