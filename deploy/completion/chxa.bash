# SPDX-License-Identifier: Apache-2.0
# bash completion of chxa(1). Made from client/tool/*.def: tests/lint/operator . --write
# Ids are asked for at the cluster, quickly or not at all.

declare -gA _chxa_options=(
    [list]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --state --owner --sink --table --older-than --age --in-doubt --blocked --all --limit --quiet'
    [show]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --parts'
    [commit]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes --reason --one-phase'
    [rollback]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes --force --reason'
    [recover]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --owner --sink --table --older-than --age --in-doubt --blocked --limit --quiet --dry-run --yes --force --epoch --commit'
    [forget]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes'
    [fsck]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --node'
    [clear]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes --force --node'
    [resolve]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes --force --reason --retry --convert --discard'
    [abandon]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --dry-run --yes --force --reason'
    [nodes]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help'
    [sinks]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --all'
    [load]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help --sink --table --epoch --format --query --txn --write-id --meta --timeout --content-encoding --prepare-only --views-skip --no-progress'
    [help]='--url --user --password-file --token-file --ca-file --deadline --json --no-color --help'
)

_chxa() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' i
    # bash takes = as a word of its own: --state=Prep is three.
    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $word == = ]] && before=${COMP_WORDS[COMP_CWORD - 1]} word=''
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ -n ${_chxa_options[${COMP_WORDS[i]}]:-} ]]; then
            command=${COMP_WORDS[i]}
            break
        fi
    done
    COMPREPLY=()
    case $before in
    -s | --state)
        mapfile -t COMPREPLY < <(compgen -W 'Initialized Prepared Committing Committed Aborting Aborted' -- "$word")
        return
        ;;
    --password-file | --token-file | --ca-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --commit) command=commit ;;
    -u | --url | --user | --deadline | --owner | --sink | -t | --table | --older-than | --age | --limit | -r | --reason | --epoch | --node | --format | --query | --txn | --write-id | --meta | --timeout | --content-encoding) return ;;
    esac
    if [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${!_chxa_options[*]} --version" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${_chxa_options[$command]}" -- "$word")
    else
        case $command in
        show | commit | rollback | resolve | abandon)
            mapfile -t COMPREPLY < <(compgen -W "$(chxa list -q --limit 200 --deadline 1s 2> /dev/null)" -- "$word")
            ;;
        help) mapfile -t COMPREPLY < <(compgen -W "${!_chxa_options[*]}" -- "$word") ;;
        load) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
        # Ids may hold a colon, at which bash breaks words.
        [[ $(type -t __ltrim_colon_completions) == function ]] && __ltrim_colon_completions "$word"
    fi
}

complete -o filenames -F _chxa chxa
