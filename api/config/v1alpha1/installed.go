package v1alpha1

// Where an installation keeps the configuration that it was given: a key of a ConfigMap
// in the namespace of the operator, one of these.
const (
	InstalledName = "lockstep-configuration"
	InstalledKey  = "config.yaml"
	// The namespaces: of the whole, and of protection by itself.
	InstalledNamespace           = "lws-system"
	InstalledProtectionNamespace = "lockstep-system"
)
