function __carstate_next
	set -l words (commandline -opc) (commandline -ct)
	carstate __complete $words[2..] 2>/dev/null
end
complete -c carstate -n '__carstate_next | string length -q' -f -a '(__carstate_next)'
