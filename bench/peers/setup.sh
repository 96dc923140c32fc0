#!/bin/sh
# Makes the Python environments of the peers in .cache/peers: `transformers` and `llama`.
#   bench/peers/setup.sh [transformers] [llama]     both without an argument; about 3 GB
# Says what it installs before it does, and does nothing where the environment works already.
set -eu
cd "$(dirname "$0")/../.."
folder=.cache/peers

make_environment() {
    name=$1 module=$2
    shift 2
    if "$folder/$name/bin/python" -c "import $module" 2>/dev/null; then
        echo "$name: is there"
        return
    fi
    echo "$name: installing $* into $folder/$name"
    python3 -m venv "$folder/$name"
    "$folder/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
}

for peer in "${@:-all}"; do
    case $peer in
    transformers | all)
        make_environment transformers transformers torch==2.13.0 transformers==5.24.0 \
            accelerate==1.15.0 gguf==0.19.0 safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6
        ;;
    esac
    case $peer in
    llama | all)
        make_environment llama llama_cpp llama-cpp-python==0.3.36 numpy==2.4.6
        ;;
    esac
    case $peer in
    transformers | llama | all) ;;
    *)
        echo "setup.sh: no peer is called $peer (transformers, llama)" >&2
        exit 2
        ;;
    esac
done
