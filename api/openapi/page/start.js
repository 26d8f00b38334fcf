// Shows the description of this very API; nothing is asked of any other host.
window.onload = () => {
  window.ui = SwaggerUIBundle({
    url: "/api/v1/openapi.json",
    dom_id: "#page",
    deepLinking: true,
    displayRequestDuration: true,
    docExpansion: "list",
    validatorUrl: null,
  });
};
