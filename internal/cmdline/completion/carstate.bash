_carstate() {
	local IFS=$'\n'
	COMPREPLY=($(carstate __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _carstate carstate
