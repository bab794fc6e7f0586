package redact

import (
	"regexp"
	"strings"
)

// class is what is done with a string.
type class int

const (
	// data becomes a token, as does everything that is not on the list.
	data class = iota
	// name stays.
	name
	// hash is a name that ends in a hash of a template.
	hash
	// words keeps the words that are known, times and numbers.
	words
	// amount stays if it is a quantity.
	amount
	// document is YAML, redacted by its fields.
	document
	// dropped goes with its key.
	dropped
)

// classes is the list of the fields that stay: FIELD, or PARENT.FIELD where fields of that name differ. PARENT.*
// stands for the fields of a map, whose keys users choose, PARENT.DOMAIN/ for those with keys of a domain, and -Word
// for fields that end in a word.
var classes = listed(map[class]string{
	name: `apiVersion kind name generateName namespace uid resourceVersion finalizers key image imageID
		labels.* matchLabels.* nodeSelector.* selector.* matchExpressions.values matchFields.values tolerations.value taints.value
		matchLabelKeys mismatchLabelKeys topologyKey topologyKeys nodeName nominatedNodeName spec.hostname subdomain
		serviceName serviceAccountName serviceAccount schedulerName priorityClassName runtimeClassName storageClassName
		volumeName claimName secretName containerName driver source.host overhead.name
		leader started.pods failures.pod failures.container failures.node containers.pod
		kernelVersion osImage containerRuntimeVersion kubeletVersion operatingSystem architecture
		annotations.leaderworkerset.sigs.k8s.io/exclusive-topology annotations.leaderworkerset.sigs.k8s.io/leader-name
		annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology
		annotations.leaderworkerset.sigs.k8s.io/workload-name annotations.lockstep.dev/from-set
		annotations.lockstep.dev/when-scaled annotations.protection.lockstep.dev/holders-digest
		annotations.scheduling.k8s.io/group-name
		exemptNamespaces podTemplates claimTemplates kinds.replicas kinds.suspend kinds.finished
		webhookServiceName webhookSecretName resourceName resourceNamespace`,

	hash: `labels.leaderworkerset.sigs.k8s.io/template-revision-hash labels.controller-revision-hash
		labels.controller.kubernetes.io/hash labels.pod-template-hash currentRevision updateRevision restarts.revision`,

	// Texts, addresses, times, the configuration, and enumerations.
	words: `message reason note action component reportingComponent reportingInstance fieldPath manager subresource
		hpaPodSelector containers.log containers.logUnread clusterIP clusterIPs
		annotations.leaderworkerset.sigs.k8s.io/ annotations.lockstep.dev/ annotations.protection.lockstep.dev/
		annotations.pv.kubernetes.io/ annotations.volume.kubernetes.io/ annotations.volume.beta.kubernetes.io/
		annotations.storageclass.kubernetes.io/ annotations.deployment.kubernetes.io/ annotations.batch.kubernetes.io/
		annotations.kubectl.kubernetes.io/restartedAt annotations.meta.helm.sh/
		at time timeAdded restartsSince -At -Time -Timestamp
		bindAddress healthProbeBindAddress readinessEndpointName livenessEndpointName minVersion schedulerProvider
		resourceLock leaseDuration renewDeadline retryPeriod idle initialHold
		-Policy -Mode -Type $patch accessModes add allocatedResourceStatuses.* drop effect groupIdentity health
		maxSurge maxUnavailable medium mode mountPropagation operation operator phase port procMount protocol qosClass
		recursiveReadOnly resize scheme sessionAffinity status stopSignal targetPort type whenDeleted whenScaled
		whenUnsatisfiable`,

	amount: `allocatable.* allocatedResources.* capacity.* limits.* minResources.* overhead.* requests.*
		divisor perContainer perPod quantity sizeLimit`,

	data: `annotations.* data.* options.* userAnnotations.* volumeAttributes.*`,

	document: `data.config.yaml`,

	// Managed fields and bytes tell nothing as tokens, and the images of a node are those of other workloads.
	dropped: `fieldsV1 binaryData status.images`,
})

func listed(fields map[class]string) map[string]class {
	classes := map[string]class{}
	for class, of := range fields {
		for _, field := range strings.Fields(of) {
			classes[field] = class
		}
	}
	return classes
}

// lastWord is the end of the name of a field such as imagePullPolicy.
var lastWord = regexp.MustCompile(`[A-Z][a-z]+$`)

// classOf is the class of a field of a parent.
func classOf(parent, field string) class {
	domain, _, _ := strings.Cut(field, "/")
	for _, known := range []string{
		parent + "." + field, parent + "." + domain + "/", parent + ".*", field, "-" + lastWord.FindString(field),
	} {
		if c, ok := classes[known]; ok {
			return c
		}
	}
	return data
}

// keysAreNames reports whether a field is a map with keys that are names.
func keysAreNames(field string) bool {
	values, isMap := classes[field+".*"]
	return (isMap && values != data) || field == "annotations"
}
