# What check says of a stack, by reading wheels and by the runs that come with fleetbuild.
# needs: index long
## stack
fleetbuild check polars==1.44.2 faiss-cpu==1.14.2 orjson==3.12.0 --for IvyBridge --for Haswell #> | grep -v '^reading '; echo "exit code ${PIPESTATUS[0]}"
