package redact

import (
	"reflect"
	"strings"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/pvc"
)

// class is what is done with a string.
type class int

const (
	// data becomes a token.
	data class = iota
	// name stays.
	name
	// words keeps the words that are known, and numbers.
	words
	// scheme keeps what is before "://".
	scheme
)

// classes of fields, by their name in JSON or by the type that has them. A field that is in neither list is data.
var classes = map[string]class{
	// Names, labels and images.
	"apiVersion": name, "kind": name, "name": name, "generateName": name, "namespace": name, "uid": name,
	"resourceVersion": name, "finalizers": name, "labels": name, "matchLabels": name, "nodeSelector": name,
	"matchLabelKeys": name, "mismatchLabelKeys": name, "topologyKey": name, "topologyKeys": name, "key": name,
	"image": name, "imageID": name, "nodeName": name, "nominatedNodeName": name, "PodSpec.hostname": name, "subdomain": name,
	"serviceName": name, "serviceAccountName": name, "serviceAccount": name, "schedulerName": name,
	"priorityClassName": name, "runtimeClassName": name, "storageClassName": name, "volumeName": name,
	"claimName": name, "secretName": name, "containerName": name, "driver": name,
	"Toleration.value": name, "Taint.value": name, "NodeSelectorRequirement.values": name,
	"LabelSelectorRequirement.values": name, "ServiceSpec.selector": name, "EventSource.host": name,

	// What the status of an object names.
	"leader": name, "currentRevision": name, "updateRevision": name, "StartedGroup.pods": name,
	"GroupRestarts.revision": name, "PodFailure.pod": name, "PodFailure.container": name, "PodFailure.node": name,
	"ContainerFailure.pod": name, "ContainerFailure.log": words, "ContainerFailure.logUnread": words,

	// What nodes are.
	"kernelVersion": name, "osImage": name, "containerRuntimeVersion": name, "kubeletVersion": name,
	"operatingSystem": name, "architecture": name, "providerID": scheme,

	// Texts.
	"message": words, "reason": words, "note": words, "type": words, "action": words, "component": words,
	"reportingComponent": words, "reportingInstance": words, "fieldPath": words, "manager": words, "subresource": words,
	"fieldsType": words, "clusterIP": words, "clusterIPs": words, "hpaPodSelector": words, "phase": words,
	"fsType": words, "iscsiInterface": words, "storageMode": words, "pool": words, "keyring": words, "user": words,

	// The operator's configuration.
	"exemptNamespaces": name, "WorkloadKind.podTemplates": name, "WorkloadKind.claimTemplates": name,
	"WorkloadKind.claimName": name, "WorkloadKind.replicas": name, "WorkloadKind.suspend": name,
	"WorkloadKind.finished": name, "bindAddress": words, "healthProbeBindAddress": words, "readinessEndpointName": words,
	"livenessEndpointName": words, "minVersion": words, "schedulerProvider": words, "webhookServiceName": name,
	"webhookSecretName": name, "resourceLock": words, "resourceName": name, "resourceNamespace": name,
	"featureGates": words,
}

// quantities are the fields whose members are amounts of resources.
var quantities = map[string]bool{"requests": true, "limits": true, "minResources": true, "capacity": true}

// classOf is the class of a string of a type in a field. The API has a type of its own for each enumeration.
func classOf(at field, of reflect.Type) class {
	for _, known := range []string{at.of + "." + at.name, at.name} {
		if c, ok := classes[known]; ok {
			return c
		}
	}
	if of.Kind() == reflect.String && of.PkgPath() != "" {
		return words
	}
	return data
}

// annotations that name something.
var namingAnnotations = map[string]bool{
	lwsv1.ExclusiveKeyAnnotationKey: true, lwsv1.SubGroupExclusiveKeyAnnotationKey: true,
	lwsv1.LeaderPodNameAnnotationKey: true, gang.FromSetAnnotationKey: true, gang.PodGroupAnnotationKey: true,
	lwsv1.WorkloadNameAnnotationKey: true,
	volumes.WhenScaledAnnotationKey: true, pvc.DigestAnnotation: true,
}

// toldAnnotations begin the keys of annotations whose words are known.
var toldAnnotations = []string{
	"leaderworkerset.sigs.k8s.io/", "lockstep.dev/", pvc.Prefix,
	"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "storageclass.kubernetes.io/",
	"deployment.kubernetes.io/", "batch.kubernetes.io/", "kubectl.kubernetes.io/restartedAt", "meta.helm.sh/",
	"olm.",
}

// classOfAnnotation is the class of the value of an annotation.
func classOfAnnotation(key string) class {
	if namingAnnotations[key] {
		return name
	}
	for _, prefix := range toldAnnotations {
		if strings.HasPrefix(key, prefix) {
			return words
		}
	}
	return data
}
