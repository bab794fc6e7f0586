package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "config.lws.x-k8s.io", Version: "v1alpha1"}

// NextVersion has the same fields as GroupVersion, and is read as well.
var NextVersion = schema.GroupVersion{Group: GroupVersion.Group, Version: "v1"}
