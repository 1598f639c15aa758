"""The interfaces of SABER's ``GPUPool`` and of easycore's runners: a program changes its import, and nothing else."""

from gangline.compat._cfg import CfgNode, HierarchicalCfgNode
from gangline.compat._easycore import OrderedRunner, UnorderedRunner
from gangline.compat._saber import GPUPool

__all__ = ["CfgNode", "GPUPool", "HierarchicalCfgNode", "OrderedRunner", "UnorderedRunner"]
