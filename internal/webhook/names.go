package webhook

// The paths requests come in on. They are those of every other implementation
// of the API, so that existing webhook configurations keep working.
const (
	PathMutateSet   = "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathValidateSet = "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathMutatePod   = "/mutate--v1-pod"
	PathValidatePod = "/validate--v1-pod"
)

// The configurations that send the API server here.
const (
	MutatingConfiguration   = "lws-mutating-webhook-configuration"
	ValidatingConfiguration = "lws-validating-webhook-configuration"
)
