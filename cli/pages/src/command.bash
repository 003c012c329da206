
# Behind --, what bash-completion knows of the command.
_larder_or_command() {
    local word
    for ((word = 1; word < COMP_CWORD; word++)); do
        [[ ${COMP_WORDS[word]} == -- ]] || continue
        COMPREPLY=()
        if declare -F _command_offset >/dev/null; then
            _command_offset $((word + 1))
        elif ((COMP_CWORD == word + 1)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$2")
        fi
        return
    done
    _larder "$@"
}

complete -F _larder_or_command -o bashdefault -o default larder
