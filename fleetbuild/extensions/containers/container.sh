# What build.container finds on one node: the engine, the image's id, and what the image holds.
#   sh -s -- NONCE IMAGE SECONDS  < container.sh, the probe's script and the last line
# Prints "NONCE engine NAME" and "NONCE id ID", then what the probe prints in the image. It pulls
# nothing: a plan changes no node.

nonce=$1 image=$2 seconds=$3
for engine in podman docker ''; do
  [ -n "$engine" ] || exit 0
  command -v "$engine" >/dev/null || continue
  echo "$nonce engine $engine"
  said=$("$engine" image inspect --format '{{.Id}}' "$image" 2>&1 </dev/null) && break
  printf '%s said %s\n' "$nonce" "$(echo "$said" | tail -n 1)"
done
echo "$nonce id $said"
"$engine" run --rm --interactive --network none --read-only --cap-drop ALL --user 65534:65534 \
  --security-opt no-new-privileges --log-driver none --pull never --workdir / --entrypoint sh \
  "$said" -s -- "$nonce" /nonexistent /nonexistent '' "$seconds" 2>&1 <<'end of the probe'
