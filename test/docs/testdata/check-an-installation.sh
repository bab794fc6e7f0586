#: as_is runs kubectl lockstep check --pre
#: installed runs kubectl lockstep check

begin() {
	have_programs
	have_cluster
}

installed() {
	[ -n "$operator" ] || have_lockstep
	"$@"
}
