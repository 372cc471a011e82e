# Publishes with paho, 1.6 or 2: client.py HOST PORT VERSION USER KEY, and a topic and a payload for
# each message. Prints "ok" once all messages are acknowledged.
import sys
import paho.mqtt.client as mqtt

host, port, version, user, key = sys.argv[1:6]
callbacks = (mqtt.CallbackAPIVersion.VERSION2,) if hasattr(mqtt, "CallbackAPIVersion") else ()
client = mqtt.Client(*callbacks, client_id="", protocol=mqtt.MQTTv5 if version == "5" else mqtt.MQTTv311)
client.will_set("$SYS/will", "gone", 1, True)
client.username_pw_set(user, key)
connects = []
client.on_connect = lambda *a: connects.append(a)
if callbacks:
    client.on_publish = lambda c, d, mid, code, properties: code.is_failure and print(code, properties.ReasonString)
client.connect(host, int(port))
client.loop_start()
for topic, payload in zip(sys.argv[6::2], sys.argv[7::2]):
    message = client.publish(topic, payload, 1)
    message.wait_for_publish(10)
    assert message.is_published()
client.disconnect()
client.loop_stop()
assert len(connects) == 1
print("ok")
