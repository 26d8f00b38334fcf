import { mount } from "svelte";
import App from "./App.svelte";
import { keys } from "./lib/keys.svelte";
import { router } from "./lib/router.svelte";
import { themes } from "./lib/theme.svelte";
import { ticker } from "./lib/ticker.svelte";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/forms.css";
import { catalogue } from "./texts/catalogue.svelte";

themes.start();
router.start();
keys.start();
ticker.start();
void catalogue.start().then(() => mount(App, { target: document.getElementById("app")! }));
