#: NAMESPACE NAME STATE is output
begin() {
	have_lockstep
	helm template charts/lockstep --values ../1.yaml --set "image.repository=$IMAGE" --set certificates.caBundle=Y2E= >/dev/null
}
