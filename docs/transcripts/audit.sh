# A published wheel, and whether it runs on old CPUs.
# needs: index
## audit (machine)
pip download --no-deps orjson==3.12.0 #> >/dev/null
fleetbuild audit orjson-*.whl --for x86-64-v2
