begin() {
	have_lockstep
	helm template charts/lockstep --values ../1.yaml --set "image.repository=$IMAGE" >/dev/null
}
