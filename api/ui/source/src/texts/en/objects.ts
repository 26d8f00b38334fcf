export const objects = {
  "name": "Name",
  "description": "Description",
  "general": "General",
  "search": "Name or description",
  "none": "Nothing with “{q}” in its name or description",
  "saved": "{name} is saved",
  "deleted": "{name} is deleted",
  "failed": "{name} could not be saved",
  "warnings": "Warnings",
};
