package webhook

// The paths of requests. They are those of other implementations of the API, so that their
// webhook configurations work.
const (
	PathMutateSet   = "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathValidateSet = "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathMutatePod   = "/mutate--v1-pod"
	PathValidatePod = "/validate--v1-pod"
)

// The names of the webhook configurations.
const (
	MutatingConfiguration   = "lws-mutating-webhook-configuration"
	ValidatingConfiguration = "lws-validating-webhook-configuration"
)
