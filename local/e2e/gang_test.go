package e2e

import (
	"fmt"
	"testing"
)

const podGroup = `
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {schedulingPolicy: {gang: {minCount: 2}}}
`

const podOfGang = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {of: gang}}
spec:
  schedulingGroup: {podGroupName: gang}
  containers: [{name: main, image: nginx}]
`

const podAlone = `
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec: {containers: [{name: main, image: nginx}]}
`

// gangsArePlacedWhole shows that the feature gate reaches the scheduler, and the API that it reads.
func gangsArePlacedWhole(t *testing.T, c *cluster) {
	c.apply(t, podGroup+"---"+fmt.Sprintf(podOfGang, "gang-0"))
	c.apply(t, podAlone)
	c.kubectl(t, "wait", "pod", "alone", "--for=condition=Ready", "--timeout=2m")
	if node := c.kubectl(t, "get", "pod", "gang-0", "-o", "jsonpath={.spec.nodeName}"); node != "" {
		t.Errorf("half a gang is on %s, and a pod after it is ready", node)
	}
	c.apply(t, fmt.Sprintf(podOfGang, "gang-1"))
	c.kubectl(t, "wait", "pods", "-l", "of=gang", "--for=condition=Ready", "--timeout=2m")
	c.kubectl(t, "delete", "pod", "alone", "gang-0", "gang-1", "--wait")
	c.kubectl(t, "delete", "podgroup", "gang", "--wait")
}
