package redact

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// The lists say what stays of a string, by its field: FIELD, or PARENT.FIELD where fields of that name differ.
// PARENT.* are the fields of a map, whose keys users choose, PARENT.DOMAIN/ those with keys of a domain, and -Word
// fields that end in a word. What is on no list becomes a token.
const (
	// names stay.
	names = `apiVersion kind name generateName namespace uid resourceVersion finalizers key labels.*
		matchLabels.* nodeSelector.* selector.* matchExpressions.values matchFields.values tolerations.value taints.value
		matchLabelKeys mismatchLabelKeys topologyKey nodeName nominatedNodeName spec.hostname subdomain serviceName
		serviceAccountName serviceAccount schedulerName priorityClassName runtimeClassName storageClassName volumeName
		claimName secretName containerName driver controllerRef.apiGroup workloadRef.workloadName workloadRef.templateName overhead.name leader started.pods failures.pod
		failures.container failures.node containers.pod kernelVersion osImage containerRuntimeVersion kubeletVersion
		operatingSystem architecture exemptNamespaces podTemplates claimTemplates kinds.replicas kinds.suspend
		kinds.finished webhookServiceName webhookSecretName resourceName resourceNamespace
		annotations.leaderworkerset.sigs.k8s.io/exclusive-topology
		annotations.leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology
		annotations.leaderworkerset.sigs.k8s.io/leader-name annotations.leaderworkerset.sigs.k8s.io/workload-name
		annotations.lockstep.dev/from-set annotations.lockstep.dev/when-scaled
		annotations.protection.lockstep.dev/holders-digest annotations.scheduling.k8s.io/group-name`

	// images stay if they are references.
	images = `image imageID`

	// hashed are names that end in a hash of a template.
	hashed = `labels.leaderworkerset.sigs.k8s.io/template-revision-hash labels.controller-revision-hash
		labels.controller.kubernetes.io/hash labels.pod-template-hash currentRevision updateRevision restarts.revision`

	// texts keep the words that are known, times and numbers: messages, annotations, the configuration, enumerations.
	texts = `message reason note action component reportingComponent reportingInstance fieldPath manager subresource
		hpaPodSelector containers.log containers.logUnread clusterIP clusterIPs $patch -Policy -Mode -Type
		annotations.leaderworkerset.sigs.k8s.io/ annotations.lockstep.dev/ annotations.protection.lockstep.dev/
		annotations.pv.kubernetes.io/ annotations.volume.kubernetes.io/ annotations.deployment.kubernetes.io/
		annotations.kubectl.kubernetes.io/restartedAt annotations.meta.helm.sh/
		at time timeAdded restartsSince -At -Time -Timestamp bindAddress healthProbeBindAddress readinessEndpointName
		livenessEndpointName minVersion schedulerProvider resourceLock leaseDuration renewDeadline retryPeriod
		accessModes add allocatedResourceStatuses.* drop effect groupIdentity health idle initialHold maxSurge
		maxUnavailable medium mode mountPropagation operation operator phase port procMount protocol qosClass resize
		recursiveReadOnly scheme sessionAffinity status stopSignal targetPort type whenDeleted whenScaled whenUnsatisfiable`

	// amounts stay if they are quantities.
	amounts = `allocatable.* allocatedResources.* capacity.* limits.* minResources.* overhead.* requests.*
		divisor perContainer perPod quantity sizeLimit`

	// secrets become tokens, even under a key that is a name elsewhere.
	secrets = `annotations.* data.* options.* userAnnotations.* volumeAttributes.*`

	// documents are YAML, redacted by its fields.
	documents = `data.config.yaml`

	// dropped fields tell nothing as tokens: managed fields, bytes, and the images of other workloads on a node.
	dropped = `fieldsV1 binaryData status.images`
)

// keep redacts a string of a field.
type keep func(value string) string

// lastWord is the end of the name of a field such as imagePullPolicy.
var lastWord = regexp.MustCompile(`[A-Z][a-z]+$`)

// rule returns what redacts the strings of a field. It is nil if the field is dropped.
func (r *Redactor) rule(parent, field string) keep {
	domain, _, _ := strings.Cut(field, "/")
	for _, listed := range []string{
		parent + "." + field, parent + "." + domain + "/", parent + ".*", field, "-" + lastWord.FindString(field),
	} {
		if keep, ok := r.fields[listed]; ok {
			return keep
		}
	}
	return r.token
}

// keysStay are the maps with keys that are names.
var keysStay = sets.New(strings.Fields(`annotations labels matchLabels nodeSelector selector limits requests capacity
	overhead allocatable allocatedResources allocatedResourceStatuses minResources`)...)
