"""The interfaces of SABER's ``GPUPool`` and of easycore's runners: a program changes its import, and nothing else."""

from gangline.compat._cfg import CfgNode
from gangline.compat._easycore import OrderedRunner, UnorderedRunner
from gangline.compat._saber import GPUPool

__all__ = ["CfgNode", "GPUPool", "OrderedRunner", "UnorderedRunner"]
