from setuptools import Extension, setup

setup(ext_modules=[Extension("dotprod", ["dotprod.c"])])
