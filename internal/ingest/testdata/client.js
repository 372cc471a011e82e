// Publishes with MQTT.js: client.js HOST PORT VERSION USER KEY, and a topic and a payload for each
// message. Prints "ok" once all messages are acknowledged.
const mqtt = require("mqtt");
const [host, port, version, username, password, ...messages] = process.argv.slice(2);
const client = mqtt.connect({
  host, port: Number(port), protocolVersion: Number(version), username, password,
  will: { topic: "$SYS/will", payload: "gone", qos: 1, retain: true },
});
let connects = 0;
client.on("connect", async () => {
  if (++connects > 1) process.exit(1); // it was disconnected
  for (; messages.length > 0; messages.splice(0, 2)) {
    await client.publishAsync(messages[0], messages[1], { qos: 1 }).catch((e) => console.log(e.code, e.message));
  }
  await client.endAsync();
  console.log("ok");
});
client.on("error", (e) => { console.log(e.message); process.exit(1); });
