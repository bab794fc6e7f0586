#: NAMESPACE stands for team
#: NAME stands for weights-cached-0

begin() {
	have_lockstep
	have_set volumes cached team
}
