// Package sdkgo proves that the deployed Go SDK of Azure IoT Operations, as its
// module proxy has it, works against this state store: its client of the store
// and its leased locks, over the MQTT library that it brings (paho.golang).
//
// Every test starts processes of its own and uses nothing but the SDK's public
// calls. Most run twice: against a store in a broker of its own, and against
// one beside mosquitto. This SDK never subscribes to its notifications but
// expects its broker to deliver them; mosquitto does not, so whatever needs a
// notification runs in the first form only.
//
// To run it, from this directory:
//
//	cargo build -p statestore
//	STATESTORE_BIN=../../target/debug/statestore go test ./... -count=1
package sdkgo
