#: lockstep-report-TIME.tar.gz stands for $(echo lockstep-report-*.tar.gz)

begin() {
	have_lockstep
	have_data
}
