package v1alpha1

// An installation keeps its configuration in a key of this ConfigMap, in the operator's
// namespace.
const (
	InstalledName = "lockstep-configuration"
	InstalledKey  = "config.yaml"
	// The namespaces of an installation for LeaderWorkerSets, and of protection alone.
	InstalledNamespace           = "lws-system"
	InstalledProtectionNamespace = "lockstep-system"
)
