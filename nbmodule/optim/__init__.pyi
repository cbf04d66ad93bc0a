"""The names of `nbmodule.optim`."""

from nbmodule.optim.named import LAMB as LAMB
from nbmodule.optim.named import LARS as LARS
from nbmodule.optim.named import SGD as SGD
from nbmodule.optim.named import Adagrad as Adagrad
from nbmodule.optim.named import Adam as Adam
from nbmodule.optim.named import AdamW as AdamW
from nbmodule.optim.named import Lion as Lion
from nbmodule.optim.named import RMSprop as RMSprop
from nbmodule.optim.optimizer import Optimizer as Optimizer
from nbmodule.optim.rate import cosine_schedule as cosine_schedule
from nbmodule.optim.rate import linear_schedule as linear_schedule
from nbmodule.optim.rate import step_schedule as step_schedule
from nbmodule.optim.slots import Optax as Optax
from nbmodule.optim.updates import adagrad_update as adagrad_update
from nbmodule.optim.updates import adam_update as adam_update
from nbmodule.optim.updates import adamw_update as adamw_update
from nbmodule.optim.updates import clip_by_global_norm as clip_by_global_norm
from nbmodule.optim.updates import global_norm as global_norm
from nbmodule.optim.updates import lamb_update as lamb_update
from nbmodule.optim.updates import lars_update as lars_update
from nbmodule.optim.updates import lion_update as lion_update
from nbmodule.optim.updates import momentum_update as momentum_update
from nbmodule.optim.updates import rmsprop_update as rmsprop_update
from nbmodule.optim.updates import sgd_update as sgd_update
