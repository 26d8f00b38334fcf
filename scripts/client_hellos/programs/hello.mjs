// node:tls: hello.mjs PORT OPTIONS, those of tls.connect as JSON
import tls from "node:tls";

const options = JSON.parse(process.argv[3]);
const socket = tls.connect({ host: "127.0.0.1", port: Number(process.argv[2]), ...options });
socket.on("error", (error) => console.log(error.message));
