#compdef carstate
_carstate() {
	local -a next
	next=(${(f)"$(carstate __complete "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f 1)"})
	if (( $#next )); then compadd -- $next; else _files; fi
}
if [ "$funcstack[1]" = _carstate ]; then _carstate; else compdef _carstate carstate; fi
