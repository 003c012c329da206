
# Behind --, what fish knows of the command.
function __fish_larder_command
    set -l words (commandline -opc)
    set -e words[1..(contains -i -- -- $words)]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete -c larder -n "contains -- -- (commandline -opc)" -f -a "(__fish_larder_command)"
