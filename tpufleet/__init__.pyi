from tpufleet.frames import Results as Results, load as load

__version__: str
